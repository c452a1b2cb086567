//go:build unmetered

package plugin

const pays = false
