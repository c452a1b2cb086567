package service

import "github.com/wasmjob/wasmjob/host/auth"

// Reads are the places of queries of histories.
func Reads(s *Service) *auth.Places { return s.reads }

// Searches are the places of searches in logs.
func Searches(s *Service) *auth.Places { return s.searches }

// Explanations are the places of explanations.
func Explanations(s *Service) *auth.Places { return s.explanations }
