//go:build race

package sdktest

const raceDetector = true
