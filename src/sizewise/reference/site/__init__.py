"""The error reference as a static site and as a server: pages for people, the same as JSON for programs."""
