#!/bin/sh
# The experiments of the older systems again, on one GPU: what is beside this file was made by it. About 20 minutes on
# an H200. CIFAR-10 first: trainscale data get cifar10
# usage: run.sh [EXPERIMENT...]      default: all
set -eu
cd "$(dirname "$0")"
data=${DATA:-cifar10}
[ $# -gt 0 ] || set -- inception-bn-28-small resnet50-cifar-b32 resnet50-cifar-b512 inceptionv3-299

train() { # FOLDER MODEL:BATCH EPOCHS OPTIONS...
    folder=$1 model=$2 epochs=$3
    shift 3
    for framework in torch jax; do
        trainscale run -o "$folder-$framework" --frameworks "$framework" --models "$model" --strategies local \
            --data "$data" --epochs "$epochs" --seed 1337 --compile "$@"
    done
}

for experiment; do
    case $experiment in
    # MXNet's CIFAR-10 example, batch 256 on a GTX 980.
    inception-bn-28-small) train "$experiment" inception-bn-28-small:256 40 --precision tf32 ;;
    # The Keras-MXNet profile: 32 images per device, 4 epochs of its 10; and a larger batch, all 10.
    resnet50-cifar-b32) train "$experiment" resnet50-cifar:32 4 --precision tf32 ;;
    resnet50-cifar-b512) train "$experiment" resnet50-cifar:512 10 --precision bf16 --learning-rate 0.1 ;;
    # CIFAR-10 enlarged to 299 pixels; 3 epochs of the profile's 5.
    inceptionv3-299)
        train "$experiment" inceptionv3:256 3 --precision bf16 --learning-rate 0.05 --schedule cosine
        ;;
    *)
        echo "run.sh: there is no experiment '$experiment'" >&2
        exit 2
        ;;
    esac
done
