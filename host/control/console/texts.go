package console

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// textTable are the console's texts.
//
//go:embed texts.tsv
var textTable string

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
