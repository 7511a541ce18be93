"""The report page, and the app that serves it with more views.

`report` reads files and writes them as one HTML page: `figures` computes what it shows, `sections` its tables,
`comparisons` the figures of two files and of labels, and `table` holds the rows in columns. The page is plain HTML,
CSS and ES modules in `page/`.

`app` answers the browser that has the token (`guard`), and reads only the project folder (`project`). `annotations`
has the answers of people, `judging` scores single responses, `code` exports the settings as code, `building` writes
and refines checklists, `jobs` scores files, `library` edits the project's files, and `live` follows a training.
"""
