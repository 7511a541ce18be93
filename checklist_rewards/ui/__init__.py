"""The report page: files of scores and rewards as one HTML file.

[`write_report`] in `report.py` reads the files and writes the page. `records` reads rows of every kind of file,
`figures` computes what the page shows, `training`, `compare` and `trust` add the figures of a run, of two files and
of labels, and `table` holds the rows in columns. The page itself is plain HTML, CSS and ES modules in `page/`, joined
by `bundle`.

The app (`app`) serves the same page with more views, to the browser that has the token (`guard`), and reads only the
project folder (`project`). `tasks` and `annotations` are the queue and the answers of people, `judging` and `snippets`
score single responses and export the settings as code, `building` writes and refines checklists, `jobs` scores files,
`uploads` receives them, `library` edits the project's files, and `live` follows a training.
"""
