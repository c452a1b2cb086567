// Package latch is ElasticJob's latch, a queue in the registry (Curator's recipe): an instance creates a
// numbered node and has its turn when no node with a lower number is left. Java hosts queue in one before they
// elect or take over, so hosts of ours do too.
package latch
