//go:build !race

package sdktest

const raceDetector = false
