// Package docs has the documents of this version, as they stand in this folder: pages in Markdown, with
// README.md as their index, schemas for editors, the API's description and pictures.
package docs

import "embed"

//go:embed *.md *.schema.json openapi.yaml pictures
var files embed.FS

// Files are the documents, by their names in this folder.
func Files() embed.FS { return files }
