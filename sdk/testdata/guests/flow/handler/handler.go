// Package handler is the handler of the guest flow.
package handler

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/wasmjob/wasmjob/sdk"
)

type record struct {
	n    int
	text string
}

// Fetch loads the numbers from the offset on.
func Fetch(_ context.Context, sc sdk.ShardingContext) ([]record, error) {
	limit, err := strconv.Atoi(sc.JobParameter)
	if err != nil {
		return nil, err
	}
	b, _ := sdk.Offset()
	n, _ := strconv.Atoi(string(b))
	var records []record
	for ; n < limit && len(records) < sc.FetchDataCount; n++ {
		records = append(records, record{n, strconv.Itoa(n)})
	}
	return records, sdk.SetOffset([]byte(strconv.Itoa(n)))
}

// Process logs their sum, and does not like 13 on the first attempt.
func Process(_ context.Context, sc sdk.ShardingContext, records []record) error {
	sum := 0
	for _, r := range records {
		if r.n == 13 && sc.Attempt == 1 {
			return sdk.Retry(errors.New("13"))
		}
		sum += r.n
	}
	slog.Info("processed", "first", records[0].text, "sum", sum)
	return nil
}
