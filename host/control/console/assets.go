package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed static templates
var files embed.FS

// assets are the files that pages load, under a prefix that changes with any of them: browsers cache them for
// ever.
type assets struct {
	prefix string
	files  map[string]asset
}

// asset is a file, as it is and compressed.
type asset struct {
	kind         string
	plain, small []byte
}

// newAssets reads the files. The style sheet of the charts is added to the console's.
func newAssets() (*assets, error) {
	a := &assets{files: make(map[string]asset)}
	sum := sha256.New()
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Base(name) == "uplot.css" {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if path.Base(name) == "app.css" {
			charts, err := files.ReadFile("static/uplot.css")
			if err != nil {
				return err
			}
			text = append(append(bytes.Clone(charts), '\n'), text...)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text) // a hash takes all
		a.files[path.Base(name)], err = newAsset(name, text)
		return err
	})
	a.prefix = "/static/" + hex.EncodeToString(sum.Sum(nil))[:16] + "/"
	return a, err
}

func newAsset(name string, text []byte) (asset, error) {
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return asset{}, err
	}
	if _, err := z.Write(text); err != nil {
		return asset{}, err
	}
	if err := z.Close(); err != nil {
		return asset{}, err
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "text/plain; charset=utf-8"
	}
	return asset{kind, text, small.Bytes()}, nil
}

// ServeHTTP implements [http.Handler]. A page of an older program may ask for older files: it gets the present
// ones, uncached.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, known := a.files[path.Base(r.URL.Path)]
	if !known {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", file.kind)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-store")
	if strings.HasPrefix(r.URL.Path, a.prefix) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body := file.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = file.small
	}
	_, _ = w.Write(body) // the client is gone if that fails
}
