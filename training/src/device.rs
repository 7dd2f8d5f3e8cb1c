//! What a method computes on.

use std::sync::OnceLock;

use candle_core::Device;

use crate::error::TrainingError;
use crate::plan::Method;

/// Each one that candle opens is another to it, and tensors of two don't meet: it is opened once.
static CUDA: OnceLock<Option<Device>> = OnceLock::new();

/// The first CUDA GPU, where this was built with the feature `cuda` and there is one.
fn cuda() -> Option<Device> {
    let open = || match Device::new_cuda(0) {
        Ok(device) => Some(device),
        Err(error) => {
            tracing::info!(error = %error, "no CUDA GPU can be used");
            None
        }
    };
    if cfg!(feature = "cuda") { CUDA.get_or_init(open).clone() } else { None }
}

/// The device of a method, or why it can't be used here.
pub(crate) fn device_of(method: Method) -> Result<Device, TrainingError> {
    let needs_cuda = || TrainingError::CudaRequired { method: method.as_str().to_owned() };
    match method {
        Method::SftLora | Method::Dpo => Ok(Device::Cpu),
        Method::Qlora | Method::Rlhf => cuda().ok_or_else(needs_cuda),
    }
}
