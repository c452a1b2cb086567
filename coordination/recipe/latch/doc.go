// Package latch is ElasticJob's latch, a queue in the registry (Curator's recipe):
// an instance makes a node with a number and has its turn when no node before it is
// left. Java hosts stand in one before they elect or take over, so hosts of ours do
// too.
package latch
