package console

import (
	"strings"

	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// mostAsked bounds the parameter of a trigger that waits, in bytes.
const mostAsked = 200

// Asked says what a trigger asks for. It is called by templates.
func (r *reader) Asked(a admin.Asked) string {
	parts := []string{r.T("triggers.all")}
	if a.Items != "" {
		parts[0] = r.T("items.range", a.Items)
	}
	if a.Param != nil {
		parts = append(parts, r.T("triggers.param", words.ClipTo(r.First(*a.Param), mostAsked)))
	}
	if !a.At.IsZero() {
		at := r.T("triggers.at", r.At(a.At).Full)
		if a.Backfill {
			at += " (" + r.T("trigger.at.backfill") + ")"
		}
		parts = append(parts, at)
	}
	return strings.Join(parts, " · ")
}

// HostNames names instances. It is called by templates.
func (p *page) HostNames(ids []string) string {
	names := make([]string, len(ids))
	for n, id := range ids {
		names[n] = p.Host(id)
	}
	return p.Names(names)
}
