"""What the pages share. `frame`, `reading`, `choosing`, `acting` talk to Streamlit; everything else is pure."""
