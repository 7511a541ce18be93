"""The report page: files of scores and rewards as one HTML file.

[`write_report`] in `report.py` reads the files and writes the page. `records` reads rows of every kind of file,
`figures` computes what the page shows, `training`, `compare` and `trust` add the figures of a run, of two files and
of labels, and `table` holds the rows in columns. The page itself is plain HTML, CSS and ES modules in `page/`, joined
by `bundle`.
"""
