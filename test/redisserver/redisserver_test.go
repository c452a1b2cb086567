package redisserver

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServer: it answers, and leaves nothing behind.
func TestServer(t *testing.T) {
	t.Parallel()
	s := ForTest(t)
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "PING\r\n")
	if answer, err := bufio.NewReader(c).ReadString('\n'); err != nil || answer != "+PONG\r\n" {
		t.Errorf("%q %v", answer, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("its files: %v", err)
	}
	if c, err := net.Dial("tcp", s.Address()); err == nil {
		c.Close()
		t.Error("somebody still listens")
	}
}
