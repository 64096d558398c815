#!/bin/bash
#SBATCH --nodes=4
# A run with its sizes in variables, arrays, branches and a function's body.
export CUDA_DEVICE_MAX_CONNECTIONS=1
SIZE=${1:-small}
GPUS_PER_NODE=8
NNODES=${NNODES:-$((1 + 1))}
TP=2; PP=2
LAYERS=$(( (TP + 2) * PP * 4 ))   # 32
case $SIZE in
    tiny | debug) HIDDEN=64 ;;
    small)
        HIDDEN=4096
        HEADS=32 ;;
    *) HIDDEN=8192 ;;
esac
COMMON="--micro-batch-size 1 \
        --global-batch-size 64"
MODEL_ARGS=(
    --num-layers $LAYERS --hidden-size $HIDDEN   # a comment
    --num-attention-heads ${HEADS}
    --ffn-hidden-size 14336 "--seq-length 4096"
    --max-position-embeddings 8192
    --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
    --untie-embeddings-and-output-weights
    --vocab-size 128256
)
PARALLEL=( --tensor-model-parallel-size=$TP --pipeline-model-parallel-size ${PP} )
if [ "$TP" -gt 1 ]; then
    PARALLEL+=(--sequence-parallel)
else
    PARALLEL+=(--tensor-model-parallel-size 7)
fi
[[ $PP == 2 && -n "$TP" ]] && EXTRA="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
[ -z "$UNSET_ANYWHERE" ] || PARALLEL+=(--tensor-model-parallel-size 9)
for word in 'not' "this one"; do echo "--tensor-model-parallel-size 5 $word" > /dev/null 2>&1; done
cat <<EOF > /dev/null
--tensor-model-parallel-size 6
EOF
EMPTY=
NONE=()
torchrun --nproc_per_node "$GPUS_PER_NODE" --nnodes $NNODES --master_port 6000 \
    pretrain_gpt.py \
    ${MODEL_ARGS[@]} "${PARALLEL[@]}" $COMMON ${EXTRA} $EMPTY "${NONE[@]}" \
    --bf16 --use-distributed-optimizer --split '99,1,0' --lr 1e-4 --data-path "${DATA:-some_where}" 2>&1 | tee log
