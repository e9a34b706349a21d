"""The dashboard: `streamlit run app.py`. Every page is a file in `pages` and also runs by itself."""

import streamlit as st

st.set_page_config(page_title="PPA", layout="wide")
st.navigation([st.Page("pages/planning.py", title="Planning", icon=":material/account_tree:", default=True)]).run()
