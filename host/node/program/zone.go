package program

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/schedule"
)

// localtime is the zone of a system, where TZ is not set; most often a symbolic link into
// the zones.
const localtime = "/etc/localtime"

// zonedTime is the format of a time in sentences: with its zone, because readers may be in another one.
const zonedTime = "2006-01-02 15:04:05 MST"

// ownZone reads the environment's TZ as the C library does. The location is nil if TZ is not set, because Go then finds
// the system's zone. Go itself takes an unreadable TZ for UTC without an error.
func ownZone(environ []string) (*time.Location, error) {
	for _, e := range environ {
		if tz, set := strings.CutPrefix(e, "TZ="); set {
			loc, err := schedule.OwnZone(tz)
			if err != nil {
				return nil, command.Usage(fmt.Errorf("TZ: %w", err))
			}
			return loc, nil
		}
	}
	return nil, nil
}

// zoneText names the zone in force with its offset at the time, such as "Asia/Shanghai (CST +08:00)".
func zoneText(environ []string, now time.Time) string {
	name := "of the system"
	if target, err := os.Readlink(localtime); err == nil {
		if _, zone, found := strings.Cut(target, "zoneinfo/"); found {
			name = zone
		}
	}
	for _, e := range environ {
		if tz, set := strings.CutPrefix(e, "TZ="); set {
			name = "TZ=" + tz
			break
		}
	}
	return name + now.Format(" (MST -07:00)")
}
