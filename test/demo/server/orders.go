package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// maxPage is how many orders a page may have.
const maxPage = 500

// Order is an order. The numbers of a city's orders begin with 1 and have no gaps.
type Order struct {
	ID      int64  `json:"id"`
	City    string `json:"city"`
	Product string `json:"product"`
	Cents   int64  `json:"cents"`
}

// Page is a page of orders, in the order of their numbers.
type Page struct {
	Orders []Order `json:"orders"`
	// Last is the number of the city's last order.
	Last int64 `json:"last"`
}

// Orders answers GET requests such as ?city=Beijing&after=17&limit=100.
type Orders struct {
	// Count is how many orders each city has by now.
	Count func() int64
}

// ServeHTTP implements http.Handler.
func (o *Orders) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	city := query.Get("city")
	after, err := strconv.ParseInt(query.Get("after"), 10, 64)
	limit, err2 := strconv.ParseInt(query.Get("limit"), 10, 64)
	if r.Method != http.MethodGet || city == "" || err != nil || err2 != nil || after < 0 || limit < 1 || limit > maxPage {
		http.Error(rw, fmt.Sprintf("GET ?city=NAME&after=NUMBER&limit=1…%d", maxPage), http.StatusBadRequest)
		return
	}
	page := Page{Orders: []Order{}, Last: o.Count()}
	for id := after + 1; id <= min(page.Last, after+limit); id++ {
		page.Orders = append(page.Orders, OrderOf(city, id))
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(page) // the client has gone, if that fails
}

// OrderOf is a city's order with a number: always the same.
func OrderOf(city string, id int64) Order {
	products := [...]string{"espresso", "filter coffee", "green tea", "croissant", "cup"}
	n := id*7919 + int64(len(city))
	return Order{id, city, products[n%int64(len(products))], 150 + n%1000}
}
