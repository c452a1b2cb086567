// Command sync is a SIMPLE job that copies the orders of one city per item from an HTTP
// API, page by page, into PostgreSQL: each order exactly once, whatever happens to the
// hosts. The city is the item's parameter, the API's address the job's parameter.
//
// The offset is the cursor: the number of the last order that was copied. A registry and
// a database cannot commit together, so the offset alone would not do: a host may die
// between the two commits, and the page would come again. Therefore the database has the
// position as well, in the row of sync_progress for the job and the item, and one transaction
// writes a page's orders and the position behind them. The offset follows.
//
// The row also has the fence of the run that wrote it last. Each begin of an item has a
// higher one. A run first puts its own there, which is refused if there is a higher
// one, and each of its transactions succeeds only as long as it is there still. So a
// host that was cut off, lost the item and does not know it cannot write between the
// pages of the next owner, however late it comes.
//
// It is a module of its own, because of pgx: the product does not require it.
// schema.sql has the tables, plugins/grants.yaml what the job is granted.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/http"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

// pageSize is how many orders a request asks for, and a transaction writes.
const pageSize = 100

func init() { simple.Register(run) }

func main() {}

// order is an order, as the API has it.
type order struct {
	ID      int64  `json:"id"`
	City    string `json:"city"`
	Product string `json:"product"`
	Cents   int64  `json:"cents"`
}

// page is what the API answers.
type page struct {
	Orders []order `json:"orders"`
	Last   int64   `json:"last"`
}

func run(ctx context.Context, sc sdk.ShardingContext) error {
	api, city := sc.JobParameter, sc.ShardingParameter
	if api == "" || city == "" {
		return fmt.Errorf("expected the API's address as job parameter and a city as parameter of item %d", sc.ShardingItem)
	}
	db, err := connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.close(ctx)
	position, err := db.claim(ctx, progress{sc.JobName, sc.ShardingItem, sc.Fence})
	if err != nil {
		return err
	}
	if offset, ok := sdk.Offset(); ok && string(offset) != strconv.FormatInt(position, 10) {
		slog.Info("the database is at another position than the offset: a run ended between the two commits", "offset", string(offset), "position", position)
	}
	copied := 0
	for {
		p, err := fetch(ctx, api, city, position)
		if err != nil {
			return err
		}
		if len(p.Orders) == 0 {
			slog.Info("copied", "city", city, "orders", copied, "position", position)
			return save(position)
		}
		if err := db.write(ctx, position, p.Orders); err != nil {
			return err
		}
		position += int64(len(p.Orders))
		copied += len(p.Orders)
		if err := save(position); err != nil {
			return err
		}
		if err := sdk.CommitOffset(); err != nil {
			return err
		}
		sdk.Progress(position, p.Last)
	}
}

// save stages the cursor.
func save(position int64) error {
	return sdk.SetOffset(strconv.AppendInt(nil, position, 10))
}

// fetch asks for the orders behind a position. They have to be the next ones: what has
// gaps or comes twice is not written.
func fetch(ctx context.Context, api, city string, position int64) (p page, err error) {
	query := url.Values{"city": {city}, "after": {strconv.FormatInt(position, 10)}, "limit": {strconv.Itoa(pageSize)}}
	resp, err := http.Get(ctx, api+"?"+query.Encode())
	if errors.Is(err, sdk.ErrDenied) {
		return p, err // another attempt is refused as well
	}
	if err != nil {
		return p, sdk.Retry(err)
	}
	defer resp.Body.Close()
	if resp.Status == 429 || resp.Status >= 500 {
		return p, sdk.Retry(fmt.Errorf("orders: status %d", resp.Status))
	}
	if resp.Status != 200 {
		return p, fmt.Errorf("orders: status %d", resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		return p, sdk.Retry(fmt.Errorf("orders: %w", err))
	}
	for i, o := range p.Orders {
		if want := position + int64(i) + 1; o.ID != want || o.City != city {
			return p, fmt.Errorf("orders: got number %d of %q, expected %d of %q", o.ID, o.City, want, city)
		}
	}
	return p, nil
}
