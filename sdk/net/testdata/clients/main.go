// Command clients uses PostgreSQL and Redis from a guest, through the client libraries
// that Go programs use.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/net"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

func run(ctx context.Context, _ sdk.ShardingContext) error {
	return errors.Join(postgres(ctx), cache(ctx))
}

func postgres(ctx context.Context) error {
	config, err := pgx.ParseConfig("postgres://job:password@db.example.com:5432/orders?sslmode=disable")
	if err != nil {
		return err
	}
	config.DialFunc, config.LookupFunc = net.DialContext, net.LookupHost
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var city string
	if err := conn.QueryRow(ctx, "select city from orders where id = 1").Scan(&city); err != nil {
		return err
	}
	slog.Info("pgx", "city", city)

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = conn.Exec(short, "select pg_sleep(60)")
	slog.Info("pgx", "deadline", errors.Is(err, context.DeadlineExceeded), "closed", conn.IsClosed())

	db := stdlib.OpenDB(*config)
	defer db.Close()
	return query(ctx, db)
}

func query(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "select city from orders")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var city string
		if err := rows.Scan(&city); err != nil {
			return err
		}
		slog.Info("database/sql", "city", city)
	}
	return rows.Err()
}

func cache(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: "cache.example.com:6379", Dialer: net.DialContext})
	defer client.Close()
	if err := client.Set(ctx, "city", "Rome", 0).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	city, err := client.Get(ctx, "city").Result()
	slog.Info("redis", "city", city)
	return err
}
