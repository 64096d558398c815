mpirun -n 8 ranvier train demo --pp 2 --micro-batch-size 4 --batch-size 16 --precision mixed
