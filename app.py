"""The dashboard: `streamlit run app.py`. Every page is a file in `pages` and also runs by itself."""

import streamlit as st

st.navigation(
    [
        st.Page("pages/live.py", title="Live", url_path="live", default=True),
        st.Page("pages/what_if.py", title="What-if", url_path="what-if"),
        st.Page("pages/planners.py", title="Planners", url_path="planners"),
        st.Page("pages/failover.py", title="Failover", url_path="failover"),
        st.Page("pages/incidents.py", title="Incidents", url_path="incidents"),
        st.Page("pages/spark.py", title="Spark", url_path="spark"),
    ]
).run()
