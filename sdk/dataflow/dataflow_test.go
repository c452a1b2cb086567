package dataflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/dataflow"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

// table is what the flow under test reads: the numbers below its length, from
// the offset on.
type table struct {
	length    int
	processed []int
	fail      func(records []int) error
}

func position() int {
	b, _ := sdk.Offset()
	n, _ := strconv.Atoi(string(b))
	return n
}

func (s *table) fetch(_ context.Context, sc sdk.ShardingContext) ([]int, error) {
	var records []int
	for n := position(); n < s.length && len(records) < sc.FetchDataCount; n++ {
		records = append(records, n)
	}
	return records, nil
}

func (s *table) process(_ context.Context, _ sdk.ShardingContext, records []int) error {
	if err := sdk.SetOffset([]byte(strconv.Itoa(records[len(records)-1] + 1))); err != nil {
		return err
	}
	if s.fail != nil {
		if err := s.fail(records); err != nil {
			return err
		}
	}
	s.processed = append(s.processed, records...)
	return nil
}

func numbers(n int) []int {
	var list []int
	for i := range n {
		list = append(list, i)
	}
	return list
}

func TestLoop(t *testing.T) {
	t.Parallel()
	s := &table{length: 35}
	h := &sdktest.Host{Context: sdktest.Context{FetchDataCount: 10}}
	r := sdktest.Dataflow(h, s.fetch, s.process)
	if r.Outcome != abi.OutcomeOK || r.Batches != 4 || r.Records != 35 {
		t.Errorf("got %+v", r)
	}
	if !slices.Equal(s.processed, numbers(35)) || string(h.Offset) != "35" || h.Commits() != 4 {
		t.Errorf("processed %v, offset %s, %d commits", s.processed, h.Offset, h.Commits())
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	s := &table{length: 35}
	h := &sdktest.Host{Context: sdktest.Context{FetchDataCount: 10}, Once: true}
	for range 2 {
		if r := sdktest.Dataflow(h, s.fetch, s.process); r.Outcome != abi.OutcomeOK || r.Batches != 1 {
			t.Errorf("got %+v", r)
		}
	}
	if string(h.Offset) != "20" {
		t.Errorf("offset %s", h.Offset)
	}
}

// TestFailedBatchComesAgain: the offset of a batch that failed is discarded.
func TestFailedBatchComesAgain(t *testing.T) {
	t.Parallel()
	down := errors.New("ledger is down")
	for _, test := range []struct {
		fail    func() error
		outcome abi.Outcome
	}{
		{func() error { return down }, abi.OutcomeFail},
		{func() error { return sdk.Retry(down) }, abi.OutcomeRetry},
		{func() error { panic(down) }, abi.OutcomeTrap},
	} {
		s := &table{length: 35, fail: func(records []int) error {
			if records[0] == 20 {
				return test.fail()
			}
			return nil
		}}
		h := &sdktest.Host{Context: sdktest.Context{FetchDataCount: 10}}
		r := sdktest.Dataflow(h, s.fetch, s.process)
		if r.Outcome != test.outcome || r.Batches != 2 || string(h.Offset) != "20" {
			t.Errorf("got %s after %d batches at offset %s, want %s after 2 at 20", r.Outcome, r.Batches, h.Offset, test.outcome)
		}
		s.fail = nil
		if r := sdktest.Dataflow(h, s.fetch, s.process); r.Outcome != abi.OutcomeOK || !slices.Equal(s.processed, numbers(35)) {
			t.Errorf("second run: %s, processed %v", r.Outcome, s.processed)
		}
	}
}

func TestFetchFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err     error
		outcome abi.Outcome
		status  abi.Status
	}{
		{errors.New("no"), abi.OutcomeFail, 1},
		{sdk.Retry(errors.New("no")), abi.OutcomeRetry, 2},
		{sdk.Fail(200, errors.New("no")), abi.OutcomeFail, 200},
	} {
		h := &sdktest.Host{}
		r := sdktest.Dataflow(h,
			func(context.Context, sdk.ShardingContext) ([]string, error) { return []string{"lost"}, test.err },
			func(context.Context, sdk.ShardingContext, []string) error {
				t.Error("processed what was not fetched")
				return nil
			})
		if r.Outcome != test.outcome || r.Status != test.status || r.Message != "no" {
			t.Errorf("got %s %d %q, want %s %d", r.Outcome, r.Status, r.Message, test.outcome, test.status)
		}
	}
}

// TestEmptyFetchMovesTheOffset: scanned and found nothing is a result, too.
func TestEmptyFetchMovesTheOffset(t *testing.T) {
	t.Parallel()
	h := &sdktest.Host{}
	r := sdktest.Dataflow(h,
		func(context.Context, sdk.ShardingContext) ([]int, error) { return nil, sdk.SetOffset([]byte("end")) },
		func(context.Context, sdk.ShardingContext, []int) error { return errors.New("nothing to process") })
	if r.Outcome != abi.OutcomeOK || r.Batches != 0 || string(h.Offset) != "end" {
		t.Errorf("got %+v at offset %q", r, h.Offset)
	}
}

func TestCancelBetweenBatches(t *testing.T) {
	t.Parallel()
	s := &table{length: 35}
	h := &sdktest.Host{Context: sdktest.Context{FetchDataCount: 10}}
	s.fail = func(records []int) error {
		if records[0] == 10 {
			h.Cancel(abi.CancelYield)
		}
		return nil
	}
	if r := sdktest.Dataflow(h, s.fetch, s.process); r.Outcome != abi.OutcomeCancelled || string(h.Offset) != "20" {
		t.Errorf("got %s at %s, want CANCELLED at 20", r.Outcome, h.Offset)
	}
}

func TestLostBetweenBatches(t *testing.T) {
	t.Parallel()
	s := &table{length: 35}
	h := &sdktest.Host{Context: sdktest.Context{FetchDataCount: 10}}
	h.OnCommit = func(offset []byte) abi.Code {
		if string(offset) == "20" {
			return abi.ErrConflict
		}
		return abi.OK
	}
	r := sdktest.Dataflow(h, s.fetch, s.process)
	if r.Outcome != abi.OutcomeCancelled || !errors.Is(r.Err, sdk.ErrConflict) || string(h.Offset) != "10" {
		t.Errorf("got %s %v at %s, want CANCELLED at 10", r.Outcome, r.Err, h.Offset)
	}
}

// TestRegistered runs the exports as a host does: first without anything
// registered, then with.
func TestRegistered(t *testing.T) {
	h := &sdktest.Host{Context: sdktest.Context{FetchDataCount: 10}}
	if r := h.DataflowExports(dataflow.FetchExport, dataflow.ProcessExport); r.Outcome != abi.OutcomeFail {
		t.Errorf("nothing registered: %s %s", r.Outcome, r.Message)
	}
	if r := h.RunExport(dataflow.ProcessExport); r.Outcome != abi.OutcomeFail {
		t.Errorf("nothing registered: %s %s", r.Outcome, r.Message)
	}
	s := &table{length: 11}
	dataflow.Register(s.fetch, s.process)
	if r := h.DataflowExports(dataflow.FetchExport, dataflow.ProcessExport); r.Outcome != abi.OutcomeOK || r.Records != 11 {
		t.Errorf("registered: %+v", r)
	}
	if r := h.RunExport(dataflow.ProcessExport); r.Outcome != abi.OutcomeFail || r.Message != "process: no batch has been fetched" {
		t.Errorf("process without a batch: %s %s", r.Outcome, r.Message)
	}
}

func Example() {
	orders := []string{"A1", "A2", "A3", "A4", "A5"}
	fetch := func(_ context.Context, sc sdk.ShardingContext) ([]string, error) {
		from := position()
		return orders[from:min(from+sc.FetchDataCount, len(orders))], nil
	}
	process := func(_ context.Context, _ sdk.ShardingContext, records []string) error {
		fmt.Println("settle", records)
		return sdk.SetOffset([]byte(strconv.Itoa(position() + len(records))))
	}
	// In a job: func init() { dataflow.Register(fetch, process) }
	host := &sdktest.Host{Context: sdktest.Context{FetchDataCount: 2}}
	result := sdktest.Dataflow(host, fetch, process)
	fmt.Println(result.Outcome, result.Records, string(host.Offset))
	// Output:
	// settle [A1 A2]
	// settle [A3 A4]
	// settle [A5]
	// OK 5 5
}
