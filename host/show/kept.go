package show

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/words"
)

// keptText is an offset or a value for a table: a text in one line, or else hex.
func keptText(b admin.Bytes) console.Cell {
	const most = 60
	text := string(b)
	switch {
	case text == "":
		return console.Coloured("(empty)", console.Grey)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }):
		text = "0x" + hex.EncodeToString([]byte(text[:min(len(text), most)]))
	default:
		text = strings.Join(strings.Fields(text), " ")
	}
	return console.Plain(words.ClipTo(text, most))
}

// keptSize is how large what an item keeps is, or that it cannot be read.
func keptSize(k admin.Kept) console.Cell {
	if k.Damaged != "" {
		return console.Coloured(k.Damaged, console.Red)
	}
	return console.Plain(words.Size(int64(k.Size)))
}

// noItems is what is shown of a job without items.
const noItems = "no items yet: no leader has sharded the job\n"

// Offsets is what offset shows.
func Offsets(s console.Style, all []admin.Kept, now time.Time) string {
	if len(all) == 0 {
		return noItems
	}
	t := console.NewTable(s, "ITEM", "OFFSET", "KEYS", "SIZE", "WRITTEN", "FENCE", "NOW")
	t.Spare = []string{"FENCE"}
	for _, k := range all {
		offset := console.Coloured("-", console.Grey)
		if k.Offset != nil {
			offset = keptText(*k.Offset)
		}
		fence, state := "-", console.Coloured("idle", console.Grey)
		if k.Fence != 0 {
			fence = strconv.FormatInt(k.Fence, 10)
		}
		if k.RunsOn != "" {
			state = console.Coloured("runs on "+k.RunsOn, console.Green)
		}
		t.Add(console.Coloured(strconv.Itoa(k.Item), console.Bold), offset, console.Plain(strconv.Itoa(len(k.Keys))), keptSize(k),
			console.Plain(words.Since(k.Written, now)), console.Plain(fence), state)
	}
	return t.String()
}

// KeyValues is what kv shows: the keys of one item with their values, or the names of
// the keys of several.
func KeyValues(s console.Style, all []admin.Kept, _ time.Time) string {
	if len(all) == 0 {
		return noItems
	}
	if len(all) == 1 && all[0].Damaged == "" {
		return itemValues(s, all[0])
	}
	t := console.NewTable(s, "ITEM", "KEYS", "SIZE")
	for _, k := range all {
		t.Add(console.Coloured(strconv.Itoa(k.Item), console.Bold), console.Plain(words.Dash(strings.Join(k.Keys, ", "))), keptSize(k))
	}
	return t.String()
}

func itemValues(s console.Style, k admin.Kept) string {
	if len(k.Keys) == 0 {
		return "item " + strconv.Itoa(k.Item) + " has no keys\n"
	}
	t := console.NewTable(s, "KEY", "VALUE", "SIZE")
	for _, key := range k.Keys {
		value := k.Values[key]
		t.Add(console.Coloured(key, console.Bold), keptText(value), console.Plain(words.Size(int64(len(value)))))
	}
	return t.String()
}
