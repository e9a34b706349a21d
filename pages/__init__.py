"""The dashboard. `python -m pages` starts it from any folder; `streamlit run app.py` from this project's."""
