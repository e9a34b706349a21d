"""The dashboard: `streamlit run app.py`. Every page is a file in `pages` and also runs by itself."""

from pathlib import Path

import streamlit as st

# A picture from here and no named icon: the browser would fetch that from elsewhere to show it on its tab.
st.set_page_config(page_title="PPA", page_icon=Path(__file__).parent / ".streamlit" / "icon.png", layout="wide")
st.navigation([st.Page("pages/planning.py", title="Planning", default=True)]).run()
