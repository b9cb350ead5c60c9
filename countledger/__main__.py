from countledger.infra.cli import main

main()
