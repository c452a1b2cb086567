package console

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// textTable are the console's texts.
//
//go:embed texts.tsv
var textTable string

// allTexts are the console's texts: those of the table, of the catalogue of operations, and of the rules of alerts.
func allTexts() (i18n.Table, error) {
	all, err := readTexts(textTable)
	if err != nil {
		return nil, err
	}
	texts := make(map[string]operation.Text)
	for _, o := range operation.All() {
		texts["operation."+firstWord(o)] = o.Text()
		for _, b := range o.Row().Buttons {
			texts["act."+b.Action], texts["act."+b.Action+".text"] = b.Label, b.Text
			if b.Done != (operation.Text{}) {
				texts["done."+b.Action] = b.Done
			}
		}
	}
	delete(texts, "operation.sign") // two operations
	for _, r := range alert.AllRules() {
		english, chinese := r.Short()
		texts["rule."+string(r)] = operation.Text{English: english, Chinese: chinese}
	}
	for key, text := range texts {
		if all[key] != nil {
			return nil, fmt.Errorf("texts.tsv: the key %s comes from a table of the program, too", key)
		}
		all[key] = text.In()
	}
	return all, nil
}

// firstWord is the first word of what a record calls an operation, by which the audit can be filtered.
func firstWord(o operation.Operation) string {
	first, _, _ := strings.Cut(o.String(), " ")
	return first
}

// readTexts reads the table: a line for each text, with tabs between its key, the English
// and the Chinese. Lines that begin with # are comments.
func readTexts(table string) (i18n.Table, error) {
	all := make(i18n.Table)
	for n, line := range strings.Split(table, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 || columns[0] == "" || columns[2] == "" {
			return nil, fmt.Errorf("texts.tsv:%d: found %d columns, expected a key, the English and the Chinese", n+1, len(columns))
		}
		if all[columns[0]] != nil {
			return nil, fmt.Errorf("texts.tsv:%d: the key %s is there twice", n+1, columns[0])
		}
		all[columns[0]] = map[i18n.Language]string{i18n.English: columns[1], i18n.Chinese: columns[2]}
	}
	return all, nil
}
