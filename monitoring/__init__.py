"""What a running pipeline tells about itself: written by the runtime, read by the pages."""
