package show

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// keptText is an offset or a value for a table: a text in one line, or else hex.
func keptText(b admin.Bytes) terminal.Cell {
	const most = 60
	text := string(b)
	switch {
	case text == "":
		return terminal.Coloured("(empty)", terminal.Grey)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }):
		text = "0x" + hex.EncodeToString([]byte(text[:min(len(text), most)]))
	default:
		text = strings.Join(strings.Fields(text), " ")
	}
	return terminal.Plain(words.ClipTo(text, most))
}

// keptSize is how large what an item keeps is, or that it cannot be read.
func keptSize(k admin.Kept) terminal.Cell {
	if k.Damaged != "" {
		return terminal.Coloured(k.Damaged, terminal.Red)
	}
	return terminal.Plain(words.Size(int64(k.Size)))
}

// noItems is what is shown of a job without items.
const noItems = "no items yet: no leader has sharded the job\n"

// Offsets is what offset shows.
func Offsets(s terminal.Style, all []admin.Kept, now time.Time) string {
	if len(all) == 0 {
		return noItems
	}
	t := terminal.NewTable(s, "ITEM", "OFFSET", "KEYS", "SIZE", "WRITTEN", "FENCE", "NOW")
	t.Spare = []string{"FENCE"}
	for _, k := range all {
		offset := terminal.Coloured("-", terminal.Grey)
		if k.Offset != nil {
			offset = keptText(*k.Offset)
		}
		fence, state := "-", terminal.Coloured("idle", terminal.Grey)
		if k.Fence != 0 {
			fence = strconv.FormatInt(k.Fence, 10)
		}
		if k.RunsOn != "" {
			state = terminal.Coloured("runs on "+k.RunsOn, terminal.Green)
		}
		t.Add(terminal.Coloured(strconv.Itoa(k.Item), terminal.Bold), offset, terminal.Plain(strconv.Itoa(len(k.Keys))), keptSize(k),
			terminal.Plain(words.Since(k.Written, now)), terminal.Plain(fence), state)
	}
	return t.String()
}

// KeyValues is what kv shows: the keys of one item with their values, or the names of
// the keys of several.
func KeyValues(s terminal.Style, all []admin.Kept, _ time.Time) string {
	if len(all) == 0 {
		return noItems
	}
	if len(all) == 1 && all[0].Damaged == "" {
		return itemValues(s, all[0])
	}
	t := terminal.NewTable(s, "ITEM", "KEYS", "SIZE")
	for _, k := range all {
		t.Add(terminal.Coloured(strconv.Itoa(k.Item), terminal.Bold), terminal.Plain(words.Dash(strings.Join(k.Keys, ", "))), keptSize(k))
	}
	return t.String()
}

func itemValues(s terminal.Style, k admin.Kept) string {
	if len(k.Keys) == 0 {
		return "item " + strconv.Itoa(k.Item) + " has no keys\n"
	}
	t := terminal.NewTable(s, "KEY", "VALUE", "SIZE")
	for _, key := range k.Keys {
		value := k.Values[key]
		t.Add(terminal.Coloured(key, terminal.Bold), keptText(value), terminal.Plain(words.Size(int64(len(value)))))
	}
	return t.String()
}
