"""The report page: files of scores and rewards as one HTML file.

[`report_data`] in `report.py` reads the files and [`write_report`] writes the page. `records` reads rows of every kind
of file, `figures` computes what the page shows, `comparisons` adds the figures of two files and of labels, and `table`
holds the rows in columns. The page itself is plain HTML, CSS and ES modules in `page/`, joined by `report`.

The app (`app`) serves the same page with more views, to the browser that has the token (`guard`), and reads only the
project folder (`project`). `annotations` has the queue and the answers of people, `judging` scores single responses,
`code` exports the settings as code, `building` writes and refines checklists, `jobs` scores files, `library` edits the
project's files, and `live` follows a training.
"""
