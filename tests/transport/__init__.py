"""What every transport makes of a hostile network: errors, answers and forks, over real TLS."""
