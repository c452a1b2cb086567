//go:build !unix

package chaos

import (
	"errors"
	"os"
)

var terminateSignal = os.Interrupt

func pauseProcess(*os.Process) error  { return errors.ErrUnsupported }
func resumeProcess(*os.Process) error { return errors.ErrUnsupported }
