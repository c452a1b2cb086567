package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// area is a part of the product whose mutants are made by operators.
type area struct {
	name string
	// folders hold the sources, tests the packages whose tests are to kill their mutants, the
	// nearest first.
	folders, tests []string
}

// areas are the parts whose mistakes cost runs.
var areas = []area{
	{"coordination",
		[]string{"coordination", "coordination/admin/cleanup", "coordination/fence", "coordination/recipe/guarantee", "coordination/recipe/latch", "coordination/recipe/permit", "coordination/admin/operate", "coordination/step"},
		[]string{"coordination", "coordination/fence", "coordination/recipe/permit", "coordination/admin/operate", "coordination/step", "coordination/registry/registrytest", "host/engine"}},
	{"catalog", []string{"host/engine/catalog"}, []string{"host/engine/catalog"}},
	{"history",
		[]string{"host/history", "host/history/database", "host/history/jsonl"},
		[]string{"host/history", "host/history/jsonl", "host/history/database"}},
	{"alerts",
		[]string{"host/alert/store", "host/alert/keeper"},
		[]string{"host/alert/store", "host/alert/keeper"}},
	{"registries",
		[]string{"coordination/registry/embedded", "coordination/registry/zookeeper"},
		[]string{"coordination/registry/embedded", "coordination/registry/zookeeper"}},
}

// random are the tests that draw what they do, or explore it: they are tried last, so that the
// report says what they alone find.
var random = regexp.MustCompile(`^(TestModel|TestRandom.*|TestRegistryAtRandom|TestLivesWithJava|TestCrashAtEvery.*|TestTwoCrashes|TestSimulation.*|TestCrowd.*|TestGarbage.*|TestJoinStorm|TestAtRandom.*|TestFuzz.*)$`)

// chosenAreas are those whose name is asked for; all of them if none is.
func chosenAreas(name string) ([]area, error) {
	if name == "" {
		return areas, nil
	}
	chosen := slices.DeleteFunc(slices.Clone(areas), func(a area) bool { return a.name != name })
	if len(chosen) == 0 {
		var names []string
		for _, a := range areas {
			names = append(names, a.name)
		}
		return nil, fmt.Errorf("area %q: expected one of %s", name, strings.Join(names, ", "))
	}
	return chosen, nil
}
