// Command cities is a SIMPLE job with one sharding item for each city: it
// works out where the sun stands there at the instant of the fire.
//
// The cities are the items' parameters, "0=Beijing,1=Shanghai,2=Guangzhou".
// Each item logs one line and reports the height of the sun as a metric. A
// city that it does not know is a failure of that item alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

// city is a place on the map, in degrees; north and east are positive.
type city struct {
	name                string
	latitude, longitude float64
}

var cities = []city{
	{"Beijing", 39.904, 116.407},
	{"Chengdu", 30.573, 104.067},
	{"Guangzhou", 23.129, 113.264},
	{"Shanghai", 31.230, 121.474},
	{"Shenzhen", 22.543, 114.058},
	{"Urumqi", 43.825, 87.617},
	{"London", 51.507, -0.128},
	{"Nairobi", -1.286, 36.817},
	{"New York", 40.713, -74.006},
	{"Quito", -0.181, -78.468},
	{"Sydney", -33.869, 151.209},
	{"Tokyo", 35.690, 139.692},
}

func run(_ context.Context, sc sdk.ShardingContext) error {
	if !sc.HasShardingParameter {
		return fmt.Errorf("item %d has no parameter: shardingItemParameters should name its city, such as %d=Beijing", sc.ShardingItem, sc.ShardingItem)
	}
	i := slices.IndexFunc(cities, func(c city) bool { return c.name == sc.ShardingParameter })
	if i < 0 {
		var known []string
		for _, c := range cities {
			known = append(known, c.name)
		}
		return fmt.Errorf("unknown city %q: known are %s", sc.ShardingParameter, strings.Join(known, ", "))
	}
	solar, height := sun(cities[i], sc.FireTime)
	slog.Info(cities[i].name+": "+sky(height),
		"sun", fmt.Sprintf("%.1f°", height), "solar_time", solar.Format("15:04"), "fire", sc.FireTime.UTC().Format(time.RFC3339))
	return errors.Join(
		sdk.Counter("cities_observed", 1),
		sdk.Gauge("sun_height_centidegrees", int64(math.Round(height*100))),
	)
}

// sky says in words what a height of the sun looks like.
func sky(height float64) string {
	switch {
	case height >= -0.83: // the upper rim is over the horizon
		return "day"
	case height >= -6:
		return "twilight"
	}
	return "night"
}

// sun returns the true solar time of a place and the height of the sun over
// its horizon in degrees, to about a tenth of a degree in this century. The
// position of the sun follows from its mean longitude and mean anomaly.
func sun(c city, t time.Time) (solar time.Time, height float64) {
	t = t.UTC()
	noon2000 := time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)
	days := t.Sub(noon2000).Hours() / 24
	anomaly := radians(357.528 + 0.9856003*days)
	mean := 280.460 + 0.9856474*days
	ecliptic := radians(mean + 1.915*math.Sin(anomaly) + 0.020*math.Sin(2*anomaly))
	tilt := radians(23.439 - 0.0000004*days)
	ascension := math.Atan2(math.Cos(tilt)*math.Sin(ecliptic), math.Cos(ecliptic))
	declination := math.Asin(math.Sin(tilt) * math.Sin(ecliptic))

	// The equation of time is how far the true sun is ahead of the mean one.
	ahead := math.Remainder(mean-degrees(ascension), 360)
	solar = t.Add(time.Duration((c.longitude + ahead) / 360 * float64(24*time.Hour)))
	midday := time.Date(solar.Year(), solar.Month(), solar.Day(), 12, 0, 0, 0, time.UTC)
	angle := radians(solar.Sub(midday).Hours() * 15)
	latitude := radians(c.latitude)
	return solar, degrees(math.Asin(math.Sin(latitude)*math.Sin(declination) + math.Cos(latitude)*math.Cos(declination)*math.Cos(angle)))
}

func radians(degrees float64) float64 { return degrees * math.Pi / 180 }
func degrees(radians float64) float64 { return radians * 180 / math.Pi }
