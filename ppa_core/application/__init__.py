"""A run as a program asks for it: what is wanted (`config`), what is checked first (`preparing`), the run (`running`)."""
