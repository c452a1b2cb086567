package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

func Example_run() {
	host := &sdktest.Host{}
	for item, name := range []string{"Beijing", "Shanghai", "Guangzhou"} {
		host.Context = sdktest.Context{
			ShardingItem: item, ShardingTotalCount: 3, ShardingParameter: name,
			FireTime: time.Date(2026, 3, 1, 4, 0, 0, 0, time.UTC),
		}
		if result := host.Run(run); result.Outcome != abi.OutcomeOK {
			fmt.Println(result.Message)
		}
	}
	for _, line := range host.Logs() {
		fmt.Println(line)
	}
	// Output:
	// INFO Beijing: day sun=42.1° solar_time=11:33 fire=2026-03-01T04:00:00Z
	// INFO Shanghai: day sun=51.1° solar_time=11:53 fire=2026-03-01T04:00:00Z
	// INFO Guangzhou: day sun=57.8° solar_time=11:20 fire=2026-03-01T04:00:00Z
}

// TestSun compares with what is known without a formula: at true noon of an
// equinox or a solstice the height is 90° less the distance from the latitude
// where the sun is overhead, and noon comes early or late as almanacs say.
func TestSun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		day      time.Time
		overhead float64 // latitude
		late     time.Duration
	}{
		{"march equinox", time.Date(2026, 3, 20, 14, 46, 0, 0, time.UTC), 0, 7*time.Minute + 25*time.Second},
		{"june solstice", time.Date(2026, 6, 21, 8, 25, 0, 0, time.UTC), 23.44, 1*time.Minute + 50*time.Second},
		{"december solstice", time.Date(2026, 12, 21, 20, 50, 0, 0, time.UTC), -23.44, -2 * time.Minute},
	} {
		for _, c := range cities {
			day := time.Date(test.day.Year(), test.day.Month(), test.day.Day(), 12, 0, 0, 0, time.UTC)
			noon := day.Add(test.late - time.Duration(c.longitude/360*float64(24*time.Hour)))
			solar, height := sun(c, noon)
			if off := solar.Sub(time.Date(solar.Year(), solar.Month(), solar.Day(), 12, 0, 0, 0, time.UTC)).Abs(); off > 40*time.Second {
				t.Errorf("%s, %s: noon is off by %v", test.name, c.name, off)
			}
			if want := 90 - math.Abs(c.latitude-test.overhead); math.Abs(height-want) > 0.3 {
				t.Errorf("%s, %s: height %.2f°, want %.2f°", test.name, c.name, height, want)
			}
			if _, midnight := sun(c, noon.Add(12*time.Hour)); midnight > 0 {
				t.Errorf("%s, %s: the sun stands at %.2f° at midnight", test.name, c.name, midnight)
			}
		}
	}
}

func TestUnknownCity(t *testing.T) {
	t.Parallel()
	for parameter, want := range map[string]string{"Paris": `unknown city "Paris": known are Beijing, `, "": "item 0 has no parameter"} {
		host := &sdktest.Host{Context: sdktest.Context{ShardingParameter: parameter}}
		if r := host.Run(run); r.Outcome != abi.OutcomeFail || !strings.HasPrefix(r.Message, want) {
			t.Errorf("%q: %s %q", parameter, r.Outcome, r.Message)
		}
	}
}

func TestSky(t *testing.T) {
	t.Parallel()
	for height, want := range map[float64]string{90: "day", 0: "day", -1: "twilight", -6.1: "night"} {
		if got := sky(height); got != want {
			t.Errorf("%v° is %s, want %s", height, got, want)
		}
	}
}
