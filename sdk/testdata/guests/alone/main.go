// Command alone does what a guest cannot do by itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(alone) }

func main() {}

func alone(_ context.Context, sc sdk.ShardingContext) error {
	switch sc.JobParameter {
	case "get":
		_, err := http.Get("https://api.example.com/")
		return err
	case "dial":
		_, err := net.Dial("tcp", "10.0.0.1:80")
		return fmt.Errorf("as text: %v", err)
	case "file":
		_, err := os.ReadFile("/data/orders.csv")
		if !errors.Is(err, syscall.EBADF) {
			return errors.New("the errno is lost")
		}
		return err
	}
	_, err := os.ReadFile("/data/orders.csv")
	panic(err)
}
