// Command clients uses PostgreSQL and Redis from a guest, through the client libraries
// that Go programs use.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

func run(ctx context.Context, sc sdk.ShardingContext) error {
	return errors.Join(postgres(ctx, sc.JobParameter), cache(ctx))
}

func postgres(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	config.DialFunc, config.LookupFunc = net.DialContext, net.LookupHost
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var city string
	if err := conn.QueryRow(ctx, "select city from orders where id = $1", 1).Scan(&city); err != nil {
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
	rows, err := db.QueryContext(ctx, "select city from orders order by id")
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

// cache uses commands one by one, in a pipeline, in a transaction, and one that the server answers
// later than the client waits.
func cache(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: "cache.example.com:6379", Dialer: net.DialContext, ContextTimeoutEnabled: true})
	defer client.Close()
	if err := client.Set(ctx, "city", "Rome", 0).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	city, err := client.Get(ctx, "city").Result()
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 100 {
			p.Incr(ctx, "visits")
		}
		return nil
	}); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	var population, visits *redis.StringCmd
	if _, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, "rome", "population", 2800000)
		population, visits = p.HGet(ctx, "rome", "population"), p.Get(ctx, "visits")
		return nil
	}); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err = client.BLPop(short, time.Minute, "nothing").Err()
	slog.Info("redis", "city", city, "population", population.Val(), "visits", visits.Val(), "deadline", errors.Is(err, os.ErrDeadlineExceeded))
	return nil
}
