package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/sdk/kv"
)

// header is the first line of each file.
var header = []string{"product", "units", "price"}

// total is what was sold of a product.
type total struct{ units, cents int64 }

// totals are those of the products.
type totals map[string]total

// addRow adds a row: a product, how many, and the price of one as 12.50.
func (t totals) addRow(fields []string) error {
	product := fields[0]
	units, err := strconv.ParseInt(fields[1], 10, 32)
	if err != nil || units < 0 {
		return fmt.Errorf("units %q of %q are no number", fields[1], product)
	}
	price, err := cents(fields[2])
	if err != nil || product == "" {
		return fmt.Errorf("price %q of %q is none such as 12.50", fields[2], product)
	}
	sum := t[product]
	t[product] = total{sum.units + units, sum.cents + units*price}
	return nil
}

// cents reads an amount: money is counted in whole numbers.
func cents(amount string) (int64, error) {
	whole, part, _ := strings.Cut(amount, ".")
	if len(part) != 2 {
		return 0, errors.New("two digits expected behind the point")
	}
	n, err := strconv.ParseUint(whole+part, 10, 31)
	return int64(n), err
}

// addState adds what was counted before, and stages the sums: they become durable with
// the offset. Products that were not sold this time are there as well afterwards.
func (t totals) addState() error {
	for product, sum := range t {
		var err error
		if sum.units, err = kv.Increment("units/"+product, sum.units); err != nil {
			return err
		}
		if sum.cents, err = kv.Increment("cents/"+product, sum.cents); err != nil {
			return err
		}
		t[product] = sum
	}
	keys, err := kv.List("units/")
	if err != nil {
		return err
	}
	for _, key := range keys {
		product := strings.TrimPrefix(key, "units/")
		if _, sold := t[product]; sold {
			continue
		}
		sum := total{}
		if sum.units, err = kv.Increment(key, 0); err != nil {
			return err
		}
		if sum.cents, err = kv.Increment("cents/"+product, 0); err != nil {
			return err
		}
		t[product] = sum
	}
	return nil
}

// markdown is the report.
func (t totals) markdown(shop string, at position) []byte {
	var b strings.Builder
	var all total
	fmt.Fprintf(&b, "# Sales of %s\n\n| Product | Units | Revenue |\n| --- | ---: | ---: |\n", shop)
	for _, product := range slices.Sorted(maps.Keys(t)) {
		sum := t[product]
		fmt.Fprintf(&b, "| %s | %d | %s |\n", product, sum.units, amount(sum.cents))
		all = total{all.units + sum.units, all.cents + sum.cents}
	}
	fmt.Fprintf(&b, "| **all** | %d | %s |\n\nRead up to byte %d of %s.\n", all.units, amount(all.cents), at.bytes, at.file)
	return []byte(b.String())
}

func amount(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }
