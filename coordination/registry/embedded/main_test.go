package embedded

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also is what the crash tests start and kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		crashWorker(dir)
		return
	}
	goleak.VerifyTestMain(m)
}
