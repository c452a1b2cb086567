package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/env"
	"github.com/wasmjob/wasmjob/sdk/net"
)

// progress names the row of an item, and who wants to write it.
type progress struct {
	job   string
	item  int
	fence int64
}

// database is a connection, for one run: it ends with the run.
type database struct {
	conn *pgx.Conn
	mine progress
}

// connect connects through the host. The password is a secret that the operator grants
// as readable, since the protocol needs it here.
func connect(ctx context.Context, address string) (*database, error) {
	if address == "" {
		return nil, errors.New("no database: grant this job env DATABASE_URL, net and the secret DB_PASSWORD, as plugins/grants.yaml does")
	}
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	if config.Password, err = env.Secret("DB_PASSWORD"); err != nil {
		return nil, err
	}
	config.DialFunc, config.LookupFunc = net.DialContext, net.LookupHost
	conn, err := pgx.ConnectConfig(ctx, config)
	if errors.Is(err, sdk.ErrDenied) {
		return nil, err // another attempt is refused as well
	}
	if errors.Is(err, sdk.ErrUnavailable) {
		return nil, sdk.Retry(fmt.Errorf("%w (make demo starts a database)", err))
	}
	if err != nil {
		return nil, sdk.Retry(err)
	}
	return &database{conn: conn}, nil
}

func (db *database) close(ctx context.Context) {
	if err := db.conn.Close(ctx); err != nil {
		slog.Warn("the connection did not end well", "error", err)
	}
}

// claim puts the run's fence into the item's row, unless there is a higher one, and
// returns how far the item has come. From then on no older run can write.
func (db *database) claim(ctx context.Context, p progress) (position int64, err error) {
	db.mine = p
	err = db.conn.QueryRow(ctx, `
		insert into sync_progress as s (job, item, fence, position) values ($1, $2, $3, 0)
		on conflict (job, item) do update set fence = excluded.fence where s.fence <= excluded.fence
		returning position`, p.job, p.item, p.fence).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, p.refused()
	}
	return position, err
}

// write writes a page and the position behind it, in one transaction. It writes nothing
// if the item's row has another fence or another position.
func (db *database) write(ctx context.Context, position int64, orders []order) error {
	return pgx.BeginFunc(ctx, db.conn, func(tx pgx.Tx) error {
		// First, so that the row is locked until the end of the transaction.
		tag, err := tx.Exec(ctx, `update sync_progress set position = $5 where job = $1 and item = $2 and fence = $3 and position = $4`,
			db.mine.job, db.mine.item, db.mine.fence, position, position+int64(len(orders)))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return db.mine.refused()
		}
		rows := make([][]any, 0, len(orders))
		cents := int64(0)
		for _, o := range orders {
			rows = append(rows, []any{o.City, o.ID, o.Product, o.Cents})
			cents += o.Cents
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"city", "id", "product", "cents"}, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			insert into revenue as r (city, orders, cents) values ($1, $2, $3)
			on conflict (city) do update set orders = r.orders + excluded.orders, cents = r.cents + excluded.cents`,
			orders[0].City, len(orders), cents)
		return err
	})
}

// refused is how a run ends whose item has another owner. It is not tried again: the
// other one does the work.
func (p progress) refused() error {
	return fmt.Errorf("item %d: fence %d is not the highest any more: another run has begun, and writes in the place of this one", p.item, p.fence)
}
