"""Pages opened in a browser, for the documents' pictures and the tests of the reports."""
