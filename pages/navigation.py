"""All pages behind one navigation: what `app.py` serves. It lies beside them, for Streamlit would list a folder below it."""

import streamlit as st

st.navigation(
    [
        st.Page("live.py", title="Live", default=True),
        st.Page("what_if.py", title="What-if", url_path="what-if"),
        st.Page("planners.py", title="Planners", url_path="planners"),
        st.Page("failover.py", title="Failover", url_path="failover"),
        st.Page("incidents.py", title="Incidents", url_path="incidents"),
        st.Page("spark.py", title="Spark", url_path="spark"),
    ]
).run()
