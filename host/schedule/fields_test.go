package schedule_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/schedule"
)

// TestFields: what words are made of is what the schedule fires by.
func TestFields(t *testing.T) {
	t.Parallel()
	zero := []int{0}
	all := func(n int) []int {
		list := make([]int, n)
		for i := range list {
			list[i] = i
		}
		return list
	}
	for expr, want := range map[string]schedule.Fields{
		"@every 90s":               {Every: 90 * time.Second},
		"@daily":                   {Seconds: zero, Minutes: zero, Hours: zero},
		"0 0/20 * * * ?":           {Seconds: zero, Minutes: []int{0, 20, 40}, Hours: all(24)},
		"5 30 9 ? * MON-FRI":       {Seconds: []int{5}, Minutes: []int{30}, Hours: []int{9}, Days: schedule.Days{Weekdays: []int{1, 2, 3, 4, 5}}},
		"0 0 3 1,15 * ?":           {Seconds: zero, Minutes: zero, Hours: []int{3}, Days: schedule.Days{Dates: []int{1, 15}}},
		"0 0 3 L-3W * ?":           {Seconds: zero, Minutes: zero, Hours: []int{3}, Days: schedule.Days{Last: true, Before: 3, Nearest: true}},
		"0 0 3 15W * ?":            {Seconds: zero, Minutes: zero, Hours: []int{3}, Days: schedule.Days{Dates: []int{15}, Nearest: true}},
		"0 0 3 ? * 6#3":            {Seconds: zero, Minutes: zero, Hours: []int{3}, Days: schedule.Days{Weekdays: []int{5}, Nth: 3}},
		"0 0 3 ? * FRIL":           {Seconds: zero, Minutes: zero, Hours: []int{3}, Days: schedule.Days{Weekdays: []int{5}, Nth: -1}},
		"0 0 3 ? JAN,JUL * 2030":   {Seconds: zero, Minutes: zero, Hours: []int{3}, Months: []int{1, 7}, Years: []int{2030}},
		"0 3 13 * 5":               {Seconds: zero, Minutes: zero, Hours: []int{3}, Days: schedule.Days{Dates: []int{13}, Weekdays: []int{5}, Either: true}},
		"*/30 * * * * ? 1970,2099": {Seconds: []int{0, 30}, Minutes: all(60), Hours: all(24), Years: []int{1970, 2099}},
	} {
		s, err := schedule.Parse(expr, time.UTC)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		if found := s.Fields(); !reflect.DeepEqual(found, want) {
			t.Errorf("%s: found %+v, expected %+v", expr, found, want)
		}
	}
}
