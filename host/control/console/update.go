package console

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"strings"
)

// headerHave names the parts of a page that a browser has, by their ids, separated by spaces. The answer is
// JSON with all parts, and the text only of those that the browser lacks.
const headerHave = "Wasmjob-Have"

const (
	// partSize is about the size of a part in bytes.
	partSize = 512
	// mostParts is about the most parts of a page, and bounds the header with them.
	mostParts = 200
)

// part is a run of lines of a page.
type part struct {
	ID   string `json:"id"`
	Text string `json:"text,omitempty"`
}

// update is a page as its parts, in order.
type update struct {
	Parts []part `json:"parts"`
}

// parts splits a page after some of its lines. seed and the line alone decide where, so that a changed, new or
// removed line changes only the parts next to it.
func parts(seed maphash.Seed, page string) []part {
	size := uint64(partSize)
	for uint64(len(page))/size > mostParts {
		size *= 2 // in large steps: a page that grows keeps its parts
	}
	var list []part
	begin, at := 0, 0
	for line := range strings.SplitAfterSeq(page, "\n") {
		at += len(line)
		if at < len(page) && maphash.String(seed, line)%size >= uint64(len(line)) { // a long line ends a part more often
			continue
		}
		if text := page[begin:at]; text != "" {
			id := binary.BigEndian.AppendUint64(nil, maphash.String(seed, text))
			list = append(list, part{base64.RawURLEncoding.EncodeToString(id), text})
		}
		begin = at
	}
	return list
}

// answerUpdate answers with what a browser lacks of a page.
func (c *Console) answerUpdate(w http.ResponseWriter, have string, status int, page string) {
	known := make(map[string]bool)
	for id := range strings.FieldsSeq(have) {
		known[id] = true
	}
	u := update{parts(c.seed, page)}
	for i := range u.Parts {
		if p := &u.Parts[i]; known[p.ID] {
			p.Text = ""
		}
		known[u.Parts[i].ID] = true // a part that is there twice is sent once
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(u) // the client is gone if that fails
}
