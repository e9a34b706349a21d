"""What is around the pages in their server: who it answers, what it takes, and the processes that plan."""
