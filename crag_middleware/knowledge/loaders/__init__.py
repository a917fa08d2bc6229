"""One file a format: each turns a file's bytes into a `Draft`, headings, lists and tables written as in Markdown."""
