// Writes the CDI spec of one A100 that is cut into two instances, as nvidia-ctk does: what NVML says comes from NVIDIA's own mock.
package main

import (
	"log"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
)

// The uuids are those of the profile a100-mig of tests/fakes/nvml/profiles.py, and so are the ids of the instances.
var instances = []struct {
	uuid    string
	profile int
	id      int
}{
	{os.Args[1], nvml.GPU_INSTANCE_PROFILE_3_SLICE, 1},
	{os.Args[2], nvml.GPU_INSTANCE_PROFILE_2_SLICE, 2},
}

func newInstance(parent *dgxa100.Device, at int) nvml.Device {
	cut := instances[at]
	info, _ := parent.GetGpuInstanceProfileInfo(cut.profile)
	instance, _ := parent.CreateGpuInstance(&info)
	computeInfo, _ := instance.GetComputeInstanceProfileInfo(cut.profile, 0)
	compute, _ := instance.CreateComputeInstance(&computeInfo)
	instance.(*dgxa100.GpuInstance).GetComputeInstanceByIdFunc = func(int) (nvml.ComputeInstance, nvml.Return) {
		return compute, nvml.SUCCESS
	}
	return &mock.Device{
		GetUUIDFunc:              func() (string, nvml.Return) { return cut.uuid, nvml.SUCCESS },
		IsMigDeviceHandleFunc:    func() (bool, nvml.Return) { return true, nvml.SUCCESS },
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return cut.id, nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
		GetAttributesFunc: func() (nvml.DeviceAttributes, nvml.Return) {
			return nvml.DeviceAttributes{MemorySizeMB: info.MemorySizeMB}, nvml.SUCCESS
		},
		GetDeviceHandleFromMigDeviceHandleFunc: func() (nvml.Device, nvml.Return) { return parent, nvml.SUCCESS },
		GetGpuInstanceByIdFunc:                 func(int) (nvml.GpuInstance, nvml.Return) { return instance, nvml.SUCCESS },
	}
}

func main() {
	server := dgxa100.New()
	server.Devices = server.Devices[:1]
	server.DriverVersion = "615.71.09"
	server.DeviceGetCountFunc = func() (int, nvml.Return) { return 1, nvml.SUCCESS }
	gpu := server.Devices[0].(*dgxa100.Device)
	gpu.MigMode = nvml.DEVICE_MIG_ENABLE
	devices := []nvml.Device{newInstance(gpu, 0), newInstance(gpu, 1)}
	gpu.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return len(devices), nvml.SUCCESS }
	gpu.IsMigDeviceHandleFunc = func() (bool, nvml.Return) { return false, nvml.SUCCESS }
	gpu.GetMigDeviceHandleByIndexFunc = func(at int) (nvml.Device, nvml.Return) { return devices[at], nvml.SUCCESS }
	gpu.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		return devices[id-1].(*mock.Device).GetGpuInstanceByIdFunc(id)
	}
	server.DeviceGetHandleByUUIDFunc = func(uuid string) (nvml.Device, nvml.Return) {
		for _, device := range append(devices, gpu) {
			if found, _ := device.GetUUID(); found == uuid {
				return device, nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	byIndex, _ := nvcdi.NewDeviceNamer(nvcdi.DeviceNameStrategyIndex)
	byUUID, _ := nvcdi.NewDeviceNamer(nvcdi.DeviceNameStrategyUUID)
	library, err := nvcdi.New(nvcdi.WithNvmlLib(server), nvcdi.WithMode(nvcdi.ModeNvml), nvcdi.WithDriverRoot("/"),
		nvcdi.WithDeviceNamers(byIndex, byUUID), nvcdi.WithNVIDIACDIHookPath("/usr/bin/nvidia-cdi-hook"))
	if err != nil {
		log.Fatal(err)
	}
	spec, err := library.GetSpec("all")
	if err != nil {
		log.Fatal(err)
	}
	if err := spec.Save(os.Args[3]); err != nil {
		log.Fatal(err)
	}
}
