"""All pages with one navigation menu; served by `app.py`. It is in the folder of the pages, because Streamlit would
list a `pages` folder below it."""

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
